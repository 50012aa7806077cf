"""Classes of failures, and whether and when to retry them."""
