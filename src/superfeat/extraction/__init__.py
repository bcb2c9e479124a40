"""Photos -> features, one Features per photo; and the folder that keeps them."""
