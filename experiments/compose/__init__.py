"""From words and option files to one configuration, and back from a saved one."""
