from warm_integrations.core.log.writing import *
