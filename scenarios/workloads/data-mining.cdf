# Sizes of flows of a data mining cluster (VL2, SIGCOMM 2009) as pFabric and PIAS use them: packets of 1460
# octets; mean 7.47 MB.
# Source: github.com/HKUST-SING/TrafficGenerator, commit c08f400, conf/CDF_vl2.txt, multiplied by 1460.
# octets  share of flows that are no larger
1460 0
1460 0.5
2920 0.6
4380 0.7
10220 0.8
389820 0.9
3076220 0.95
97333820 0.99
973333820 1
