# Sizes of flows of a web search cluster (DCTCP, SIGCOMM 2010) as pFabric uses them: packets of 1460 octets;
# mean 1.666 MB.
# Source: github.com/HKUST-SING/TrafficGenerator, commit c08f400, conf/CDF_dctcp.txt, multiplied by 1460.
# octets  share of flows that are no larger
8760 0
8760 0.15
18980 0.2
27740 0.3
48180 0.4
77380 0.53
194180 0.6
973820 0.7
1946180 0.8
4866180 0.9
9733820 0.97
29200000 1
