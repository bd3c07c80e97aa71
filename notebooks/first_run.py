# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # First run
# Four simulated A100s serve requests like those of the Azure conversation trace. Nothing is downloaded.
# The same with commands: [FIRST_RUN](../docs/tutorials/FIRST_RUN.md).

# %%
import matplotlib.pyplot as plt

import servetwin as st
from servetwin.cli.main import run as servetwin

words = {
    "cluster": "a100_x4", "model": "llama3_8b", "trace": "azure_conv_like", "trace__requests": 2000,
    "trace__rate_per_s": 20, "journal": True, "overwrite": True,
}  # fmt: skip
run = st.simulate(**words, out="out/one")
print(run)

# %% [markdown]
# How far off may it be? The range is from the same requests with all step times at the low and at the high
# end of their error.

# %%
for metric in ("ttft_ms.p99", "tpot_ms.mean"):
    low, high = run.summary["range"][metric]
    print(f"{metric}: {low:.1f} to {high:.1f} ms")

# %%
run.plot()

# %% [markdown]
# ## One request
# A row per request. Which ones waited longest?

# %%
run.requests.nlargest(5, "ttft_ms")[["request", "prompt_tokens", "output_tokens", "replica", "ttft_ms"]]

# %% [markdown]
# The journal has every event and every decision with its reason. What happened to request 17? In a terminal
# this is `servetwin story out/one request=17`.

# %%
assert servetwin(["story", "out/one", "request=17"]) == 0

# %% [markdown]
# A fresh controller gets the events of the journal. Does it decide the same?

# %%
assert servetwin(["replay", "out/one"]) == 0

# %% [markdown]
# ## Change one thing
# Each request went to the replica with the fewest outstanding requests. Would taking turns be worse?
# Both runs have the same requests, so the difference is taken request by request.

# %%
turns = st.simulate(**words, system__dispatch="round_robin", out="out/turns")
pairs = run.requests.merge(turns.requests, on="request", suffixes=("_one", "_turns"))
difference = pairs["ttft_ms_turns"] - pairs["ttft_ms_one"]
faster = (difference < 0).mean()
print(f"taking turns: mean TTFT {difference.mean():+.1f} ms, faster for {faster:.0%} of requests")

# %%
figure, axis = plt.subplots(figsize=(6, 3.2))
for label, one in (("least outstanding", run), ("round robin", turns)):
    axis.ecdf(one.requests["ttft_ms"], label=label)
axis.set(xscale="log", xlabel="TTFT, ms", ylabel="share of requests")
axis.legend(frameon=False)
plt.show()
