# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Size a cluster
# How many GPUs does a load need for an objective, what do they cost, how sure is the answer?
# The same with commands: [SIZE_A_CLUSTER](../docs/tutorials/SIZE_A_CLUSTER.md).

# %%
import matplotlib.pyplot as plt

import servetwin as st

load = {
    "model": "llama3_8b", "trace": "azure_conv_like", "trace__requests": 2000, "trace__rate_per_s": 60,
}  # fmt: skip
objective = {"slo__ttft_p99_ms": 500, "slo__tpot_mean_ms": 30}

# %% [markdown]
# You supply the prices; ServeTwin has none.

# %%
plan = st.plan(
    gpu=["a100", "h100"], find="cheapest", price__a100="1.4EUR", price__h100="2.5EUR", model__tp=1,
    **load, **objective,
)  # fmt: skip
print(plan.sentence)
plan.table[["layout", "gpus", "cost", "ttft_ms.p99", "tpot_ms.mean"]]

# %%
print(f"{plan.low} GPUs with the fastest step times of the error band, {plan.high} with the slowest")

# %% [markdown]
# ## What do four GPUs serve?
# The GPUs are given, the rate is asked. The answer is a factor on the rate of the trace.

# %%
rate = st.plan(gpu="h100", find="rate", gpus=4, model__tp=1, **load, **objective)
print(rate.sentence)

# %% [markdown]
# ## Is one draw enough?
# A drawn trace is one sample. So the sizes around the answer run with three seeds.

# %%
sweep = st.sweep(cluster=["h100_x2", "h100_x3", "h100_x4"], seed=range(3), **load)
sweep.means.query("metric == 'ttft_ms.p99'")

# %%
figure, axis = plt.subplots(figsize=(6, 3.2))
gpus = sweep.table["cluster"].str.removeprefix("h100_x").astype(int)
axis.plot(gpus, sweep.table["ttft_ms.p99"], "o", alpha=0.6)
axis.axhline(objective["slo__ttft_p99_ms"], linestyle="--", color="black", linewidth=1)
axis.set(xlabel="GPUs", ylabel="TTFT P99, ms (dashed: objective)", yscale="log", xticks=[2, 3, 4])
axis.set_title("a point per seed")
plt.show()
