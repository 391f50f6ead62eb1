"""Things: products, devices, reports, history, latest values, commands, tasks, RPS."""
