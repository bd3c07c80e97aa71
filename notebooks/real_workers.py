# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Real workers
# The policies of a simulation on two real processes: they load real parameters and compute real tokens, on
# CPU cores, with a small Llama of random weights.
# Needs torch and transformers (`make test-real`, or `pip install '.[real]'`).
# The same with commands: [REAL_WORKERS](../docs/tutorials/REAL_WORKERS.md).

# %%
import matplotlib.pyplot as plt

import servetwin as st
from servetwin.cli.main import run as servetwin
from servetwin.cli.realexec import run as realexec

words = [
    "system=vllm", "cluster=local", "workers=2", "model=tiny_llama", "trace=azure_conv_like",
    "trace.limit=20", "trace.tokens_scale=0.1", "journal=true", "overwrite=true", "out=out/workers",
]  # fmt: skip
assert realexec(["run", *words]) == 0

# %% [markdown]
# The status would be 1 if one token differed from what `generate` of transformers says for the same prompt.
# So batching and chunks of prompts changed no token.

# %%
run = st.read("out/workers")
real = run.summary["real"]
print(f"{real['tokens_checked']} tokens checked, {real['tokens_different']} differ")

# %% [markdown]
# ## The same controller
# The events of the real run go to a fresh controller. Does it decide the same?

# %%
assert servetwin(["replay", "out/workers"]) == 0

# %%
assert servetwin(["story", "out/workers", "request=3"]) == 0

# %% [markdown]
# ## Does the simulation agree?
# `config=` takes every value of the real run. Without a measurement of this machine the simulation uses a
# rough declaration of a CPU core. `realexec calibrate` measures it
# ([CALIBRATE](../docs/how-to/CALIBRATE.md)).

# %%
twin = st.simulate("config=out/workers", out="out/twin", overwrite=True)
print(run)
print(twin)

# %%
figure, axis = plt.subplots(figsize=(6, 3.2))
for label, one in (("real workers", run), ("simulated, not calibrated", twin)):
    axis.ecdf(one.requests["ttft_ms"], label=label)
axis.set(xscale="log", xlabel="TTFT, ms", ylabel="share of requests")
axis.legend(frameon=False)
plt.show()
