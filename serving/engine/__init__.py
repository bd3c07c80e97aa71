"""One replica: its queue, its batch, its KV ledger; and the fleet that a dispatcher chooses from."""
