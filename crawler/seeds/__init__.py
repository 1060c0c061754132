"""Where URLs come from: files, standard input, sitemaps and start URLs keys."""
