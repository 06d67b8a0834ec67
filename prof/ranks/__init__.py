"""What the ranks of a job say of themselves, merged: which rank the others wait for, for how long, and why."""
