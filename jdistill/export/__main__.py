"""`python -m jdistill.export`."""

from jdistill.core.errors import leave
from jdistill.export.command import main

leave(main())
