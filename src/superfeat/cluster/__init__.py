"""Several machines, on Ray: shards that answer from actors, and photos that are looked at by workers."""

PATIENCE = 5.0  # seconds that a question waits for a shard
