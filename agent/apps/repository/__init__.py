"""What is known of apps: the apps, their journal, revisions, pulls and latest events."""
