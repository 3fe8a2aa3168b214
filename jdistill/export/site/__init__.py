"""A page that searches a run's texts in the reader's browser: its data, the browser's runtime, and the folder that holds them."""
