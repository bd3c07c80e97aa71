"""The policy of Figure 10, under the name that tests write."""

from experiments.llumnix.once import Once as Once
