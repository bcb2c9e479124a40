"""Why a photo was found: the exact score as shares of words, features and regions."""
