"""What every room needs: errors, progress, devices and processes, files, locks, digests."""
