from warm_integrations.core.records import *
