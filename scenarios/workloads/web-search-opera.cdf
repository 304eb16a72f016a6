# Sizes of flows of a web search cluster (DCTCP, SIGCOMM 2010) as Opera uses them; mean 1.49 MB.
# Source: github.com/TritonNetworking/opera-sim, Figure1_traffic/websearch.csv.
# octets  share of flows that are no larger
4000 0
5971 0.077
8722 0.1525
18614 0.1951
27563 0.3
44871 0.4279
77113 0.5328
193593 0.6016
620119 0.6967
1933313 0.8016
3147330 0.8607
4853634 0.9033
6901099 0.9426
9812271 0.9721
15759080 0.9852
28589215 1
