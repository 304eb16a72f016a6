# Sizes of flows between racks of a Hadoop cluster (Facebook) as Opera uses them; mean 3.43 MB.
# Source: github.com/TritonNetworking/opera-sim, FB_Hadoop_Inter_Rack_FlowCDF.csv.
# octets  share of flows that are no larger
325 0
1177 0.0173
15443 0.0277
28000 0.06
37323 0.105
51067 0.336
74908 0.515
93293 0.642
141819 0.773
237853 0.889
573344 0.957
2076744 0.966
27244995 0.974
98686787 0.984
223092956 1
