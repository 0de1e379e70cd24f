"""Hashers that are as quick as argon2 lets them be: tests check what is done with hashes, not their strength."""

from argon2 import PasswordHasher

QUICK = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
QUICK_BUT_OTHER = PasswordHasher(time_cost=2, memory_cost=8, parallelism=1)
