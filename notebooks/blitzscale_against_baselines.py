# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # BlitzScale against its baselines
# The same bursty requests, three seeds, on two hosts of a cluster with links: who is faster, and by how much?

# %%
import servetwin as st

SYSTEMS = ["serverlessllm", "allcache", "blitzscale"]
found = st.sweep(
    system=SYSTEMS, seed=range(3), trace="azure_code_like", trace__requests=200, trace__rate_per_s=12,
    cluster="blitz_b_1x8",
)  # fmt: skip
print(found)

# %%
ttft = found.table.pivot(index="seed", columns="system", values="ttft_ms.p99")[SYSTEMS]
print(ttft.round(0))

# %% [markdown]
# The same seed has the same arrivals, so the differences are taken seed by seed.

# %%
(ttft.sub(ttft["serverlessllm"], axis=0)).describe().loc[["mean", "min", "max"]].round(0)

# %%
axes = ttft.plot.bar(ylabel="TTFT P99, ms")
