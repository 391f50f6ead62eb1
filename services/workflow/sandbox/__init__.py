"""The sandbox: processes that run code of users without access to anything else."""
