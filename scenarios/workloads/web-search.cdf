# Sizes of flows of a web search cluster (DCTCP, SIGCOMM 2010); mean 1.71 MB.
# Source: github.com/alibaba-edu/High-Precision-Congestion-Control, traffic_gen/WebSearch_distribution.txt;
# the same in github.com/HKUST-SING/TrafficGenerator, conf/DCTCP_CDF.txt.
# octets  share of flows that are no larger
0 0
10000 0.15
20000 0.2
30000 0.3
50000 0.4
80000 0.53
200000 0.6
1000000 0.7
2000000 0.8
5000000 0.9
10000000 0.97
30000000 1
