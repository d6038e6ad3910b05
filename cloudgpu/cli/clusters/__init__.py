"""What verbs say of a cluster, where they would say it of a machine."""
