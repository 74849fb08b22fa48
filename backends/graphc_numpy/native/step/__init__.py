"""Native regions: functions that run one kernel after the other."""
