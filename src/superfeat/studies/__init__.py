"""Looking into networks, and measuring the tables of the paper again."""
