# Sizes of flows of a data mining cluster (VL2, SIGCOMM 2009) in octets; mean 12.66 MB. See data-mining.cdf for the
# table that agrees with what CONGA says of it.
# Source: github.com/HKUST-SING/TrafficGenerator, conf/VL2_CDF.txt.
# octets  share of flows that are no larger
0 0
180 0.1
216 0.2
560 0.3
900 0.4
1100 0.5
1870 0.6
3160 0.7
10000 0.8
400000 0.9
3160000 0.95
100000000 0.98
1000000000 1
