# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # A first run
# Four simulated A100s serve requests like those of the Azure conversation trace. Nothing is downloaded.

# %%
import servetwin as st

run = st.simulate(
    "system=vllm", trace="azure_conv_like", trace__requests=2000, trace__rate_per_s=20, cluster="a100_x4"
)
print(run)

# %% [markdown]
# How far off may it be? The range is the same run with all step times at the low and high end of their error.

# %%
for metric in ("ttft_ms.p99", "tpot_ms.mean"):
    low, high = run.summary["range"][metric]
    print(f"{metric}: {low:.1f} to {high:.1f} ms")

# %%
run.plot()

# %% [markdown]
# One row per request: which prompts waited longest?

# %%
run.requests.nlargest(5, "ttft_ms")[["request", "prompt_tokens", "output_tokens", "replica", "ttft_ms"]]
