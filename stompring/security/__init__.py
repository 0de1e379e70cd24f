"""Security: users, passwords, certificates, roles, permissions, limits on logins. Without Twisted."""
