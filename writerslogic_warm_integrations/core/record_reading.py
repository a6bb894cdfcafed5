from warm_integrations.core.record_reading import *
