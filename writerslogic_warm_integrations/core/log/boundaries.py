from warm_integrations.core.log.boundaries import *
