"""Several calls for one result: side by side, as a quorum, in a debate, as samples."""
