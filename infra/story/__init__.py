"""The whole story of a cluster: provisioned, used, damaged, recovered, destroyed; and compared byte by byte."""
