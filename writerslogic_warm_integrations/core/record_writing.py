from warm_integrations.core.record_writing import *
