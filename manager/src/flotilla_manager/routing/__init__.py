"""The way to the brokers: who leads, how often to try, and what an end means."""
