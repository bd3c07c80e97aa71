# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Read a run
# Notebooks only read saved results. Make one first, for example with `make run`, and name its folder here
# (or in the environment variable SERVETWIN_RESULT).

# %%
import json
import os
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd

folder = Path(os.environ.get("SERVETWIN_RESULT", "out/first"))
summary = json.loads((folder / "summary.json").read_text())
requests = pd.read_parquet(folder / "requests.parquet")
print(f"{summary['trace']['name']} on {summary['cluster']}: {summary['requests']}")

# %% [markdown]
# ## Does a longer prompt wait longer?

# %%
quartile = pd.qcut(requests["prompt_tokens"], 4, duplicates="drop")
by_prompt = requests.groupby(quartile, observed=True)["ttft_ms"].describe(percentiles=[0.5, 0.99])
print(by_prompt[["count", "mean", "50%", "99%"]].round(1))

# %% [markdown]
# ## Time to first token over the day

# %%
figure, axis = plt.subplots(figsize=(8, 3))
axis.plot(requests["arrival_ns"] / 1e9, requests["ttft_ms"], ".", markersize=2, alpha=0.4)
axis.axhline(summary["slo"]["ttft_ms"], linestyle="--", color="black", linewidth=1)
axis.set(xlabel="arrival (s)", ylabel="TTFT (ms)", yscale="log", title=f"{summary['model']}, {folder.name}")
figure.tight_layout()
plt.show()
