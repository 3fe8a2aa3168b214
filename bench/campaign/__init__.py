"""The campaign: runs of jdistill that are killed, damaged, starved of disk and run twice at once, and what came of each."""
