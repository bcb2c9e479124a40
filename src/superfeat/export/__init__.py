"""What was found, for other programs: tables, folders of links, keywords beside the photos."""
