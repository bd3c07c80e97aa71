# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Read a result
# A calm run and an overloaded one: what tells them apart, and which requests were slow.
# The same with commands: [READ_A_RESULT](../docs/tutorials/READ_A_RESULT.md).

# %%
import matplotlib.pyplot as plt
import pandas as pd

import servetwin as st

words = {
    "cluster": "a100_x4", "model": "llama3_8b", "trace": "azure_conv_like", "trace__requests": 2000,
    "overwrite": True,
}  # fmt: skip
calm = st.simulate(**words, trace__rate_per_s=20, out="out/calm")
busy = st.simulate(**words, trace__rate_per_s=40, out="out/busy")

# %% [markdown]
# A result folder is opened again with `st.read`, also in another notebook and weeks later.

# %%
calm = st.read("out/calm")
print(calm)
print(sorted(path.name for path in calm.folder.glob("[!.]*")))

# %% [markdown]
# ## Is it overloaded?
# Look at the range. Below saturation it is narrow. Near saturation a small error of the step times decides
# how long requests wait, so it is wide.

# %%
METRICS = ["ttft_ms.mean", "ttft_ms.p99", "tpot_ms.mean"]
ranges = {name: run.summary["range"] for name, run in {"20/s": calm, "40/s": busy}.items()}
pd.DataFrame(
    {(name, end): [found[metric][place] for metric in METRICS]
     for name, found in ranges.items() for place, end in enumerate(("lowest", "highest"))},
    index=METRICS,
).round(1)  # fmt: skip

# %%
figure, axes = plt.subplots(1, 2, figsize=(9, 3), sharey=True)
for axis, (name, run) in zip(axes, {"20 requests/s": calm, "40 requests/s": busy}.items()):
    axis.plot(run.requests["arrival_ns"] / 1e9, run.requests["ttft_ms"], ".", markersize=2, alpha=0.5)
    axis.axhline(run.summary["slo"]["ttft_ms"], linestyle="--", color="black", linewidth=1)
    axis.set(xlabel="arrival, s", yscale="log", title=name)
axes[0].set(ylabel="TTFT, ms (dashed: objective)")
plt.show()

# %% [markdown]
# At 40 requests per second the time to first token grows while the trace lasts: more requests arrive than are
# served.
#
# ## Which requests were slow?

# %%
requests = calm.requests
late = requests[requests["ttft_ms"] > calm.summary["slo"]["ttft_ms"]]
print(f"{len(late)} of {len(requests)} requests missed the objective of their first token")
print(f"their median prompt: {late['prompt_tokens'].median():.0f} tokens")
print(f"median prompt of all: {requests['prompt_tokens'].median():.0f} tokens")

# %%
quartile = pd.qcut(requests["prompt_tokens"], 4)
requests.groupby(quartile, observed=True)["ttft_ms"].describe(percentiles=[0.5, 0.99]).round(1)

# %%
figure, axis = plt.subplots(figsize=(6, 3.2))
axis.scatter(requests["prompt_tokens"], requests["ttft_ms"], s=4, alpha=0.5)
axis.axhline(calm.summary["slo"]["ttft_ms"], linestyle="--", color="black", linewidth=1)
axis.set(xlabel="prompt, tokens", ylabel="TTFT, ms (dashed: objective)")
plt.show()
