# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Read a journal
# A journal has every event that reached the controller and every action it answered, with its reason.

# %%
import json
import tempfile
from pathlib import Path

import servetwin as st
from servetwin.cli import main as cli

folder = Path(tempfile.mkdtemp()) / "run"
st.simulate(
    trace="azure_conv_like",
    trace__requests=50,
    trace__rate_per_s=10,
    cluster="a100_x2",
    journal=True,
    out=folder,
)
lines = (folder / "journal").read_text().splitlines()
header, first = json.loads(lines[0]), json.loads(lines[1])
print(sorted(header))
print(first)

# %% [markdown]
# What happened to one request, from the journal alone:

# %%
cli.run(["story", str(folder), "request=7"])

# %% [markdown]
# And the proof that the decisions are those of the policy: a fresh controller answers the same.

# %%
cli.run(["replay", str(folder)])
