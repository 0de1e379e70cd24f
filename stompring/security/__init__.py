"""Who may do what: so far, who is who."""
