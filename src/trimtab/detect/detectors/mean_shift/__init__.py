"""Two-window mean-shift detector at several time scales, robust to autocorrelation and outliers."""
