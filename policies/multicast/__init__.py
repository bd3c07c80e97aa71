"""Which ways parameters take from those who have them to those who load."""
