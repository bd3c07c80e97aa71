# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Write a policy
# A dispatcher gets a request and a view of the fleet, and answers with a replica and a reason. A prompt
# of 4,000 tokens takes far longer than one of 100, so this one counts tokens instead of requests.
# The same with commands, and on real workers: [WRITE_A_POLICY](../docs/tutorials/WRITE_A_POLICY.md).

# %%
import matplotlib.pyplot as plt

import servetwin as st


class MyDispatch:
    """The replica with the least work: prompt tokens, and ``per_request`` tokens more for each request."""

    def __init__(self, per_request: int = 1000) -> None:
        if per_request < 0:
            raise ValueError("per_request is a number of tokens, 0 or more")
        self._per_request = per_request

    def dispatch(self, request, fleet):
        replicas = [fleet.replica_at(place) for place in range(fleet.replicas)]
        work, replica = min((self._work(one, fleet), one) for one in replicas)
        return replica, f"{work} tokens of work"

    def _work(self, replica, fleet):
        return fleet.prompt_tokens(replica) + self._per_request * fleet.load(replica, "outstanding")


# %% [markdown]
# The class itself is the option; its parameters are keys.

# %%
words = {"trace": "azure_conv_like", "trace__requests": 1000, "trace__rate_per_s": 20, "cluster": "a100_x4"}
run = st.simulate(**words, system__dispatch=MyDispatch, system__dispatch__per_request=1000)
print(run)

# %% [markdown]
# ## Is it better?
# One run proves little. Five seeds, each with the same requests for both policies:

# %%
both = ["least_outstanding", MyDispatch]
sweep = st.sweep(**words, seed=range(5), system__dispatch=both, uncertainty="off")
shares = sweep.table.pivot(index="seed", columns="system/dispatch", values="slo.attainment")
shares.columns = [name.removeprefix("__main__:") for name in shares.columns]
shares[["least_outstanding", "MyDispatch"]]

# %% [markdown]
# The difference is taken seed by seed, so the noise of the arrivals cancels.

# %%
gain = 100 * (shares["MyDispatch"] - shares["least_outstanding"])
half = 2.776 * gain.std() / 5**0.5  # Student's t with 4 degrees of freedom, 95 %
mean = gain.mean()
print(f"SLO attainment {mean:+.2f} points, 95 % interval {mean - half:+.2f} to {mean + half:+.2f}")

# %%
figure, axis = plt.subplots(figsize=(6, 3.2))
axis.plot(shares[["least_outstanding", "MyDispatch"]].T, "o-", color="tab:blue", alpha=0.6)
axis.set(ylabel="SLO attainment, share", xlim=(-0.4, 1.4), title="a line per seed")
plt.show()

# %% [markdown]
# Put the class into a module (`my_dispatch.py`), and all commands take it as
# `system/dispatch=my_dispatch:MyDispatch`: simulate, sweep, plan, replay, `realexec run`.
