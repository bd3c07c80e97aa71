# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Plan a cluster
# How many GPUs keep the P99 of the time to first token below 800 ms, and what if the step times are off?

# %%
import servetwin as st

found = st.plan(
    "gpu=a100,h100", model__tp=1, slo__ttft_p99_ms=800, trace="azure_conv_like", trace__requests=500,
    trace__rate_per_s=60, price__h100=2.5, price__a100=1.4,
)  # fmt: skip
print(found.sentence)
found.table[["layout", "gpus", "cost", "ttft_ms.p99"]]

# %%
print(f"{found.low} GPUs with the fastest step times of the error band, {found.high} with the slowest")
