"""Python files that an export carries for those who load it without jdistill."""
