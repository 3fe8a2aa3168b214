"""`python -m jdistill.report`."""

from jdistill.core.errors import leave
from jdistill.report.command import main

leave(main())
