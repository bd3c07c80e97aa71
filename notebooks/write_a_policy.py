# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Write a policy
# A dispatcher gets a request and a view of the fleet, and answers with a replica and a reason. This one sends
# long prompts to the last replica and the others to the least busy of the rest.

# %%
import servetwin as st


class LongPromptsApart:
    """Prompts of at least ``long_tokens`` tokens have a replica of their own."""

    def __init__(self, long_tokens: int = 2000) -> None:
        self.long_tokens = long_tokens

    def dispatch(self, request, fleet):
        *others, last = (fleet.replica_at(position) for position in range(fleet.replicas))
        if request.prompt_tokens >= self.long_tokens or not others:
            return last, f"{request.prompt_tokens} tokens"
        load, replica = min((fleet.load(replica, "outstanding"), replica) for replica in others)
        return replica, f"{load} outstanding"


# %% [markdown]
# The class itself is the option; its parameters are keys.

# %%
COMMON = {"trace": "azure_conv_like", "trace__requests": 1000, "trace__rate_per_s": 15, "cluster": "a100_x4"}
mine = st.simulate(**COMMON, system__dispatch=LongPromptsApart, system__dispatch__long_tokens=3000)
theirs = st.simulate(**COMMON, system__dispatch="least_outstanding")
for run in (mine, theirs):
    print(run)

# %% [markdown]
# Put the class into a module (`my_policies.py`), and all commands take it as
# `system/dispatch=my_policies:LongPromptsApart`: simulate, sweep, plan, replay, `realexec run`.
