# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Reproduce a paper
# A figure of BlitzScale made again, beside the paper's numbers; then its system against two baselines on
# requests of your choice.
# The same with commands: [REPRODUCE_A_PAPER](../docs/tutorials/REPRODUCE_A_PAPER.md).

# %%
import json
import subprocess
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd

import servetwin as st

command = "servetwin reproduce blitzscale fig21 seeds=1 sweeps=false overwrite=true out=out/fig21"
words = [sys.executable, "-m", *command.split()]
print(subprocess.run(words, check=True, capture_output=True, text=True).stdout)

# %% [markdown]
# Each row has a number of the paper, ours, their ratio and a verdict. *In band*: the direction holds, and the
# size is within a factor of 1.5. Below the table is why the others are out.

# %%
rows = pd.DataFrame(json.loads(Path("out/fig21/fig21.json").read_text())["rows"])
figure, axis = plt.subplots(figsize=(6, 4.5))
axis.axvspan(1 / 1.5, 1.5, color="lightgrey")
axis.plot(rows["ratio"], rows["name"], "o")
axis.set(xlabel="ours / paper (grey: in band)")
axis.invert_yaxis()
plt.show()

# %% [markdown]
# ## Its system against baselines
# The same bursty requests, three seeds, on two hosts of a cluster with links: who is faster, and by how much?

# %%
SYSTEMS = ["serverlessllm", "allcache", "blitzscale"]
found = st.sweep(
    system=SYSTEMS, seed=range(3), trace="azure_code_like", trace__requests=200, trace__rate_per_s=12,
    cluster="blitz_b_1x8",
)  # fmt: skip
ttft = found.table.pivot(index="seed", columns="system", values="ttft_ms.p99")[SYSTEMS]
ttft.round(0)

# %% [markdown]
# The same seed has the same arrivals, so the differences are taken seed by seed.

# %%
ttft.sub(ttft["serverlessllm"], axis=0).describe().loc[["mean", "min", "max"]].round(0)

# %%
figure, axis = plt.subplots(figsize=(6, 3.2))
ttft.plot.bar(ylabel="TTFT P99, ms", ax=axis)
plt.show()
