"""Several machines, on Ray: shards that answer from actors, and photos that are looked at by workers."""
