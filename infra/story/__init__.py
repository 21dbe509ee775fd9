"""The whole story of a cluster: provisioned, used, wounded, recovered, destroyed; and compared byte by byte."""
